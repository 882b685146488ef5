"""HTTP/1.1 from our side: bytes to an address and back, without knowing what they mean."""
