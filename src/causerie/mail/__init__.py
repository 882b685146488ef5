"""Short letters by SMTP. Knows nothing of what is in them."""
