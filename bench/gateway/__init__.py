"""Parts of the gateway's measurement: the mock upstream, the load, the contestants, the bars."""
