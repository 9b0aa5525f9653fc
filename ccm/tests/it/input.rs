//! Flags, files and sockets that are wrong, and the HTTPS port.
