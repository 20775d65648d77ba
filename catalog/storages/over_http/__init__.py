"""What stores share that are asked over HTTP by requests of our own, an object by one request."""
