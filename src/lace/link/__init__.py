"""Links: a machine with its store on a stream; clients, servers and exchanges in one process."""
