"""What is asked: cases, and the calls that they become."""
