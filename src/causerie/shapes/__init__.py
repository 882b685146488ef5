"""API shapes, a folder each: a reader (bytes to a :class:`~causerie.protocol.request.ChatRequest`, or a refusal) and an encoder (events to bytes). Nothing behind them knows which one asked."""
