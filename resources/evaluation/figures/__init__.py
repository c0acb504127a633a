"""The figures of the evaluation report: each has a title, a sentence on how to read it, and a Plotly
drawing.
"""
