"""HTTP: the server that clients come to, and the client that asks other servers."""
