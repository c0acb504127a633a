"""Who may do what: tokens, sessions of browsers, the checks before every request, and the record of every write.

It knows the catalog's tables of tokens and the audit, and HTTP; it must not know what a route does. A route takes
:data:`server.access.caller.Viewer` where it lists things of several projects.
"""
