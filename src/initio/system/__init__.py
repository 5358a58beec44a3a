"""What the machine gives: files that are whole or not there, locks, memory, and places where work is done."""
