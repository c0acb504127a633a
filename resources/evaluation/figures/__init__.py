"""The figures of the evaluation report, each with a title, a sentence on how to read it, and a drawing."""
