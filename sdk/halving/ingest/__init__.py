"""The way of a value from ``log()`` to a segment of the store.

It leads through validation, media, device tensors, the writer, the drain and recovery. It never blocks or
ends training; it must not know epochs, checkpoints or trials.
"""
