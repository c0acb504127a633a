"""The gates between a winner and its promotion: what each asks, and its verdict: pass, fail, or too little
evidence.

Each kind of gate is judged once, when the report is made, and its verdict is a part of the report. Only the
lineage is looked at again when a winner is promoted. They must not know how versions are kept, nor Dagster.
"""
