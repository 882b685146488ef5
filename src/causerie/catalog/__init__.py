"""The models behind the doors: names, capabilities, prices, and the public router catalog."""
