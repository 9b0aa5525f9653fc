//! Who may read what: TokenReview and SubjectAccessReview.
