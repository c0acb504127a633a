"""How much a comparison on a finite test split says: bootstrap, exact and score tests, and what is concluded
from them.

Pure functions of arrays and seeds. It must not know reports, specs, the store or the catalog.
"""
