"""Text engines that the service runs: their interface, the engines, and model weights."""
