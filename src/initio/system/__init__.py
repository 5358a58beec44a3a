"""What the machine gives: files that are whole or not there, leases, memory, and places where work is done."""
