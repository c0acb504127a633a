"""The files that paths and patterns name, on this machine or an object store, and whether they change."""
