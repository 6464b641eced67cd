"""`finishline up`: one supervisor for a broker, a server and a worker on this machine."""
