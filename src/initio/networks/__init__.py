"""Networks: `graphs`, a network as data, without torch; then its module, its cost, its supernet, its export."""
