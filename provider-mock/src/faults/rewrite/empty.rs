//! Answers of empty items: an item has a few bytes on the wire, and hundreds in memory.

use prost::encoding::{WireType, encode_key, encode_varint};

/// The default size.
const KIB: usize = 14 * 1024;
/// The size of gRPC's prefix of each message.
const FRAME_BYTES: usize = 5;

/// The numbers of the fields around the list of items, the outermost first, and one encoded empty
/// item with its tag.
fn shape(rpc: &str) -> (&'static [u32], &'static [u8]) {
    match rpc {
        // With an empty label: the first entry of a map takes the most memory.
        "LookupInstances" => (&[], &[0x12, 0x04, 0x22, 0x02, 0x3a, 0x00]),
        "ListInstances" => (&[2], &[0x0a, 0x02, 0x3a, 0x00]),
        "EnsureLoadBalancer" => (&[6, 1], &[0x0a, 0x00]),
        // A load balancer of a listing. Each one has a message of its own.
        _ => (&[], &[0x12, 0x00]),
    }
}

/// The messages of an answer with this size in KiB.
pub(super) fn items(rpc: &str, kib: Option<&str>) -> Vec<Vec<u8>> {
    let kib = kib.and_then(|kib| kib.parse().ok()).unwrap_or(KIB);
    let bytes = kib.saturating_mul(1024);
    let (around, item) = shape(rpc);
    if rpc == "ListLoadBalancers" {
        return vec![item.to_vec(); bytes / (item.len() + FRAME_BYTES)];
    }
    let list = item.repeat(bytes / item.len());
    let message = around.iter().rev().fold(list, |inner, field| {
        let mut outer = Vec::with_capacity(inner.len() + 8);
        encode_key(*field, WireType::LengthDelimited, &mut outer);
        encode_varint(inner.len() as u64, &mut outer);
        outer.extend(inner);
        outer
    });
    vec![message]
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as pb;
    use prost::Message;

    use super::*;

    #[test]
    fn they_are_decoded_as_so_many_items() {
        fn one<M: Message + Default>(rpc: &str) -> M {
            let messages = items(rpc, Some("6"));
            M::decode(messages[0].as_slice()).unwrap()
        }
        let looked: pb::LookupInstancesResponse = one("LookupInstances");
        assert_eq!(looked.results.len(), 1024);
        let Some(pb::lookup_instance_result::Outcome::Found(found)) = &looked.results[0].outcome
        else {
            panic!("{:?}", looked.results[0]);
        };
        assert_eq!(found.labels.len(), 1);
        let listed: pb::ListInstancesResponse = one("ListInstances");
        let Some(pb::list_instances_response::Part::Instances(list)) = listed.part else {
            panic!("no instances");
        };
        assert_eq!(list.instances.len(), 1536);
        assert_eq!(list.instances[0].labels.len(), 1);
        let ensured: pb::EnsureLoadBalancerResponse = one("EnsureLoadBalancer");
        let Some(pb::ensure_load_balancer_response::Outcome::Ready(ready)) = ensured.outcome else {
            panic!("not ready");
        };
        assert_eq!(ready.status.unwrap().ingress.len(), 3072);
        let listed: pb::ListLoadBalancersResponse = one("ListLoadBalancers");
        assert!(matches!(
            listed.part,
            Some(pb::list_load_balancers_response::Part::LoadBalancer(_))
        ));
        assert_eq!(items("ListLoadBalancers", Some("7")).len(), 1024);
    }
}
