"""MLflow's REST API on our own store, catalog and index, for unchanged MLflow clients.

A thin layer: a table of endpoints (:mod:`server.mlflow.endpoints`) names a function for each that is
supported, which reads the request's fields, calls ``resources.tracking``, and answers in the form of MLflow's
protobuf messages. MLflow itself is imported for its grammar of filters alone, in a thread once one of its
clients has asked for anything: that takes seconds.
"""
