//! The HTTPS port: health, metrics, configz.

mod auth;
