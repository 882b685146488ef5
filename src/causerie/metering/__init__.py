"""What was used: one record a request, and the counters made of them."""
