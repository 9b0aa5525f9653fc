//! The provider's handle, stored on the Service (▲S19). Pure.
//!
//! The annotation's value is a JSON object:
//! `{"provider":"aws","uid":"…","class":"","handle":"lb-1"}`.
//! - `provider` is the name that the provider states (`GetProviderInfo`), so that another process
//!   for the same cloud takes over.
//! - `uid` is the Service's. An annotation from a copied manifest has another UID and does not
//!   count.
//! - `class` is the last `loadBalancerClass` with which the provider took the Service on; empty if
//!   it had none. The API server drops the class when the type changes. If the Service later has
//!   another class, which this provider does not serve, the Service went to another component.
//!   Some annotations lack this field, such as those written by hand or by an early version.
//! - `handle` is absent until the provider gives one.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::core::text::TEXT_LIMIT;

/// The key of the annotation: [`crate::core::DOMAIN`] and `load-balancer`.
pub(super) const ANNOTATION: &str = "grpc-ccm.io/load-balancer";

/// The annotation's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    /// The recorded class of the Service; empty: none. `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) handle: Option<String>,
}

/// The content of the Service's annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// The Service has no annotation, or the annotation is for another Service.
    Nothing,
    /// The annotation is invalid: somebody edited it.
    Garbage,
    /// A provider took the Service on. The value is without the UID.
    By(Mark),
}

impl Stored {
    /// Parses the annotation of a Service.
    pub(super) fn of(service: &Service) -> Self {
        let Some(text) = service.annotations().get(ANNOTATION) else {
            return Self::Nothing;
        };
        let Ok(mut mark) = serde_json::from_str::<Mark>(text) else {
            return Self::Garbage;
        };
        // The ccm stores the UID. Without one, somebody wrote the annotation by hand, for example
        // to move a load balancer to this Service.
        let uid = mark.uid.take();
        if uid.is_some() && uid != service.metadata.uid {
            return Self::Nothing;
        }
        mark.handle = mark.handle.filter(|handle| !handle.is_empty());
        let bytes = mark.handle.as_ref().map_or(0, String::len);
        if mark.provider.is_empty() || bytes > TEXT_LIMIT {
            return Self::Garbage;
        }
        Self::By(mark)
    }

    fn mark(&self) -> Option<&Mark> {
        match self {
            Self::By(mark) => Some(mark),
            Self::Nothing | Self::Garbage => None,
        }
    }

    /// The handle, if this provider gave it.
    pub(super) fn handle_of(&self, me: &str) -> Option<&str> {
        let ours = self.mark().filter(|mark| mark.provider == me);
        ours?.handle.as_deref()
    }

    /// The recorded class, if this provider took the Service on.
    pub(super) fn class_of(&self, me: &str) -> Option<&str> {
        let ours = self.mark().filter(|mark| mark.provider == me);
        ours?.class.as_deref()
    }

    /// The recorded class, whichever provider took the Service on.
    pub(super) fn class(&self) -> Option<&str> {
        self.mark()?.class.as_deref()
    }

    /// The recorded provider.
    pub(super) fn provider(&self) -> Option<&str> {
        self.mark().map(|mark| mark.provider.as_str())
    }
}

/// The annotation's value as text.
pub(super) fn render(
    provider: &str,
    uid: Option<&str>,
    class: Option<&str>,
    handle: Option<&str>,
) -> String {
    let mark = Mark {
        provider: provider.to_owned(),
        uid: uid.map(str::to_owned),
        class: class.map(str::to_owned),
        handle: handle.map(str::to_owned),
    };
    // Serialising strings does not fail.
    serde_json::to_string(&mark).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures::service;

    fn with(text: &str) -> Service {
        let mut service = service();
        service
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(ANNOTATION.to_owned(), text.to_owned());
        service
    }

    fn by(provider: &str, handle: Option<&str>) -> Stored {
        Stored::By(Mark {
            provider: provider.to_owned(),
            uid: None,
            class: None,
            handle: handle.map(str::to_owned),
        })
    }

    #[test]
    fn s19_the_annotation_is_read_as_it_was_written() {
        assert_eq!(ANNOTATION, format!("{}load-balancer", crate::core::DOMAIN));
        assert_eq!(Stored::of(&service()), Stored::Nothing);
        for handle in [None, Some("lb-1"), Some("a\"b;c=d\n€")] {
            for class in [None, Some(""), Some("mock.io/fast")] {
                let text = render("mock", service().metadata.uid.as_deref(), class, handle);
                let expected = Stored::By(Mark {
                    provider: "mock".to_owned(),
                    uid: None,
                    class: class.map(str::to_owned),
                    handle: handle.map(str::to_owned),
                });
                assert_eq!(Stored::of(&with(&text)), expected, "{text}");
                assert_eq!(expected.class_of("mock"), class);
                assert_eq!(expected.class_of("other"), None);
            }
        }
    }

    #[test]
    fn s19_what_was_edited() {
        let long = format!(
            r#"{{"provider":"mock","handle":"{}"}}"#,
            "x".repeat(TEXT_LIMIT + 1)
        );
        let cases: [(&str, Stored); 8] = [
            ("", Stored::Garbage),
            ("lb-1", Stored::Garbage),
            ("{}", Stored::Garbage),
            (r#"{"provider":"","handle":"lb-1"}"#, Stored::Garbage),
            (&long, Stored::Garbage),
            (
                r#"{"provider":"mock","handle":"lb-1"}"#,
                by("mock", Some("lb-1")),
            ),
            (
                r#"{"provider":"mock","handle":"lb-1","more":1}"#,
                by("mock", Some("lb-1")),
            ),
            // Copied from another Service.
            (
                r#"{"provider":"mock","uid":"another","handle":"lb-1"}"#,
                Stored::Nothing,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(Stored::of(&with(text)), expected, "{text}");
        }
    }

    #[test]
    fn s19_another_providers_handle_is_never_sent() {
        assert_eq!(by("mock", Some("lb-1")).handle_of("mock"), Some("lb-1"));
        assert_eq!(by("other", Some("lb-1")).handle_of("mock"), None);
        assert_eq!(Stored::Garbage.handle_of("mock"), None);
    }
}
