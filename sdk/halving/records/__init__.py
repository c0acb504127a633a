"""What a run was: its record, where its code and environment came from, and the redaction of secrets in both.

It writes and reads these files; it must not know how metric points are kept, or who reads the records.
"""
