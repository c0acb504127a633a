"""Views of Compare that are saved under a name for a project.

It knows the names and values that Compare's address has, and the catalog's rows of views. It must not know
who may see a project, or how a page draws a view.
"""
