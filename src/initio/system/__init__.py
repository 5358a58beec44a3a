"""What the machine gives: files that are whole or not there, leases, memory, a clock, places where work is done."""
