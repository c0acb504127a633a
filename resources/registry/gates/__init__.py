"""The gates between a winner and its promotion; each passes, fails, or has too little evidence.

Each kind of gate is judged once, when the report is made, and its verdict is a part of the report. Only the
lineage is judged again when a winner is promoted. Gates must not know how versions are kept, nor Dagster.
"""
