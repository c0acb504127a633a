"""Models of the registry for those who serve them: found by name, loaded, and exported as folders.

The package reads what the registry has written, and needs no catalog. It must not know who may promote what.
"""
