//! Batches that fit: by count and by bytes. Pure.
