"""What chooses the params of new trials: a module for each way to do so, behind one protocol."""
