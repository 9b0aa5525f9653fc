//! Load balancers for Services.
