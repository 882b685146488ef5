"""From the bytes of a body to a :class:`ChatRequest`, or a refusal that names the field.

Every parameter is honoured, is a hint that is dropped, or is refused; none is ignored in silence.
The model that will answer is not known here, so nothing is checked that depends on one.
"""
