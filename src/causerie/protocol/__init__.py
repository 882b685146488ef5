"""The shared words: the wire, the events, the event-stream codec. No I/O."""
