"""Models of the registry as those who serve them use them: found in the store by name, loaded, exported as
folders that stand alone.

It reads what the registry has written, and needs no catalog; it must not know who may promote what.
"""
