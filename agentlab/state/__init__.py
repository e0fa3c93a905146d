"""What a run knows."""
