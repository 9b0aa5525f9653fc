//! Load balancers without a Service (▲S16), if two consecutive lists agree. Pure.

use std::collections::BTreeMap;

use cloud_provider_api::v1alpha1::ListedLoadBalancer;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::handle;
use crate::core::{Key, is_dns_name};

/// The most deletions after one list, or a tenth of the list if that is more.
const FEW: usize = 5;

/// A load balancer with the mark of a Service that is gone, or without any Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    /// The Service in the load balancer's mark.
    pub(super) service: Key,
    /// Its UID. Empty if the load balancer names no Service. Then the ccm does not delete it.
    pub(super) uid: String,
    pub(super) load_balancer: String,
    handle: Option<String>,
}

impl Orphan {
    /// A stand-in for the Service, sufficient for deleting the load balancer and for events.
    pub(super) fn ghost(&self, provider: &str) -> Service {
        let annotation = self.handle.as_ref().map(|given| {
            let value = handle::render(provider, Some(&self.uid), None, Some(given));
            (handle::ANNOTATION.to_owned(), value)
        });
        Service {
            metadata: ObjectMeta {
                namespace: Some(self.service.namespace.clone()),
                name: Some(self.service.name.clone()),
                uid: Some(self.uid.clone()),
                annotations: annotation.map(|pair| [pair].into()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}

/// The result of one list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The orphans that are in this list and in the one before.
    pub(super) all: Vec<Orphan>,
    /// The new ones, which have to be reported.
    pub(super) news: Vec<Orphan>,
    /// How many may be deleted now.
    pub(super) at_once: usize,
}

impl Found {
    /// The orphans to delete now, if the API server does not know their Services either.
    pub(super) fn deletable(self) -> Vec<Orphan> {
        let named = self.all.into_iter().filter(|orphan| !orphan.uid.is_empty());
        named.take(self.at_once).collect()
    }
}

/// The results of earlier lists.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// In how many consecutive lists an orphan was, by the Service's UID and the load balancer's
    /// name.
    seen: BTreeMap<(String, String), u32>,
}

impl Orphans {
    /// Handles a complete list. `exists` knows the UIDs of all Services, and of deleted ones with a
    /// record.
    pub(super) fn pass(
        &mut self,
        listed: &[ListedLoadBalancer],
        exists: impl Fn(&str) -> bool,
    ) -> Found {
        let before = std::mem::take(&mut self.seen);
        let mut found = Found {
            at_once: FEW.max(listed.len() / 10),
            ..Found::default()
        };
        for balancer in listed {
            for orphan in orphans_of(balancer, &exists) {
                let key = (orphan.uid.clone(), orphan.load_balancer.clone());
                let times = before.get(&key).map_or(1, |times| times.saturating_add(1));
                // If one list has an entry twice, the entry counts once.
                if self.seen.insert(key, times).is_some() {
                    continue;
                }
                if times == 2 {
                    found.news.push(orphan.clone());
                }
                if times >= 2 {
                    found.all.push(orphan);
                }
            }
        }
        found
    }
}

fn orphans_of(balancer: &ListedLoadBalancer, exists: impl Fn(&str) -> bool) -> Vec<Orphan> {
    let orphan = |namespace: &str, name: &str, uid: &str| Orphan {
        service: Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        uid: uid.to_owned(),
        load_balancer: balancer.load_balancer_name.clone(),
        handle: balancer.handle.clone(),
    };
    if balancer.owners.is_empty() {
        return vec![orphan("", "", "")];
    }
    let gone = balancer
        .owners
        .iter()
        .filter(|owner| !owner.uid.is_empty() && !exists(&owner.uid))
        // The name becomes part of a URL for the API server. No Service has an invalid name.
        .filter(|owner| is_dns_name(&owner.namespace) && is_dns_name(&owner.name));
    gone.map(|owner| orphan(&owner.namespace, &owner.name, &owner.uid))
        .collect()
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1::ServiceRef;

    use super::super::handle::Stored;
    use super::*;

    fn listed(name: &str, uids: &[&str]) -> ListedLoadBalancer {
        let owner = |uid: &&str| ServiceRef {
            namespace: "default".to_owned(),
            name: format!("s-{uid}"),
            uid: (*uid).to_owned(),
        };
        ListedLoadBalancer {
            load_balancer_name: name.to_owned(),
            handle: Some(format!("h-{name}")),
            owners: uids.iter().map(owner).collect(),
        }
    }

    fn uids(orphans: &[Orphan]) -> Vec<&str> {
        orphans.iter().map(|orphan| orphan.uid.as_str()).collect()
    }

    #[test]
    fn s16_two_lists_in_a_row_must_agree() {
        let mut orphans = Orphans::default();
        let list = [listed("a", &["here", "gone"]), listed("b", &["here"])];
        let here = |uid: &str| uid == "here";
        assert_eq!(orphans.pass(&list, here).all, []);
        let second = orphans.pass(&list, here);
        assert_eq!(
            (uids(&second.all), uids(&second.news)),
            (vec!["gone"], vec!["gone"])
        );
        let third = orphans.pass(&list, here);
        assert_eq!(uids(&third.all), ["gone"]);
        assert!(third.news.is_empty(), "each is reported once");
        // The count starts again when the Service exists once, or when one list lacks the load
        // balancer.
        orphans.pass(&list, |_| true);
        assert_eq!(orphans.pass(&list, here).all, []);
        orphans.pass(&[], here);
        assert_eq!(orphans.pass(&list, here).all, []);
        // The same Service with another load balancer counts separately.
        assert_eq!(orphans.pass(&[listed("c", &["gone"])], here).all, []);
    }

    #[test]
    fn s16_a_load_balancer_that_names_no_service_is_told_and_never_deleted() {
        let mut orphans = Orphans::default();
        let list = [listed("a", &[]), listed("b", &[""])];
        orphans.pass(&list, |_| false);
        let found = orphans.pass(&list, |_| false);
        assert_eq!(found.news.len(), 1);
        assert_eq!(found.news[0].load_balancer, "a");
        assert!(found.deletable().is_empty());
    }

    #[test]
    fn s16_a_name_that_no_service_has_is_asked_of_nobody() {
        let mut orphans = Orphans::default();
        let mut list = [listed("a", &["one"]), listed("b", &["two"])];
        list[0].owners[0].name = "../../nodes/n1".to_owned();
        list[1].owners[0].namespace = "default/services?x=".to_owned();
        orphans.pass(&list, |_| false);
        assert_eq!(orphans.pass(&list, |_| false).all, []);
    }

    #[test]
    fn s16_few_are_deleted_at_once() {
        for (many, at_once) in [(3, 3), (5, 5), (40, 5), (100, 10)] {
            let names: Vec<_> = (0..many).map(|i| format!("u{i:03}")).collect();
            let list: Vec<_> = names
                .iter()
                .map(|uid| listed(uid, &[uid.as_str()]))
                .collect();
            let mut orphans = Orphans::default();
            orphans.pass(&list, |_| false);
            let found = orphans.pass(&list, |_| false);
            assert_eq!(found.all.len(), many);
            assert_eq!(found.deletable().len(), at_once, "{many}");
        }
    }

    #[test]
    fn s16_the_handle_of_the_list_is_sent_with_the_delete() {
        let orphan = orphans_of(&listed("a", &["gone"]), |_| false).remove(0);
        let ghost = orphan.ghost("mock");
        assert_eq!(Stored::of(&ghost).handle_of("mock"), Some("h-a"));
        let names = (
            ghost.metadata.namespace,
            ghost.metadata.name,
            ghost.metadata.uid,
        );
        let expected = ("default", "s-gone", "gone");
        assert_eq!(
            names,
            (
                Some(expected.0.to_owned()),
                Some(expected.1.to_owned()),
                Some(expected.2.to_owned())
            )
        );
    }
}
