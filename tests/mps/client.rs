//! A real client.
