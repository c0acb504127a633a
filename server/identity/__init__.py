"""Who asks: tokens, sessions of browsers, the key that both are signed with, and where a request comes from.

It knows the catalog's tables of tokens and secrets; it must not know the server's state, a request's way
through it, or a route. A route takes :data:`server.identity.caller.Viewer` where it lists things of several
projects.
"""
