use prost::Message as _;

use super::*;

const LOOKUP: &str = "/cloudprovider.v1alpha1.InstanceService/LookupInstances";
const LIST: &str = "/cloudprovider.v1alpha1.InstanceService/ListInstances";
const PROBE: &str = "/cloudprovider.v1alpha1.ProviderService/Probe";
const WATCH: &str = "/cloudprovider.v1alpha1.ProviderService/WatchChanges";
const KIB: usize = 1024;

/// A gRPC frame.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat()
}

fn weigh(path: &str, bytes: &[u8]) -> Result<u64, Refused> {
    let mut weight = Weight::of(path, &Budget::default());
    weight.add(bytes)?;
    Ok(weight.decoded)
}

/// A field that no message has, with `length` bytes.
fn unknown(length: usize) -> Vec<u8> {
    let mut message = vec![0xfa, 0x7f];
    prost::encoding::encode_varint(length as u64, &mut message);
    message.resize(message.len() + length, b'x');
    message
}

fn answer() -> api::LookupInstancesResponse {
    let result = |number: usize| api::LookupInstanceResult {
        node_name: format!("node-{number}"),
        node_uid: "u".repeat(number),
        ..Default::default()
    };
    api::LookupInstancesResponse {
        results: (0..300).map(result).collect(),
        ..Default::default()
    }
}

#[test]
fn every_rpc_of_the_contract_has_a_shape() {
    assert_eq!(
        SHAPES
            .answers()
            .filter(|path| SHAPES.answer(path).is_some())
            .count(),
        SHAPES.answers().count()
    );
    for path in [LOOKUP, LIST, PROBE, WATCH] {
        assert!(SHAPES.answer(path).is_some(), "{path}");
    }
}

#[test]
fn a_shape_is_at_least_as_large_as_its_rust_type() {
    let shape = |path| SHAPES.answer(path).unwrap().size as usize;
    assert!(shape(LOOKUP) >= size_of::<api::LookupInstancesResponse>());
    assert!(shape(LIST) >= size_of::<api::ListInstancesResponse>());
    assert!(shape(PROBE) >= size_of::<api::ProbeResponse>());
    assert!(shape(WATCH) >= size_of::<api::WatchChangesResponse>());
    let (_, results) = SHAPES.answer(LOOKUP).unwrap().field(2).unwrap();
    let result = results.message.unwrap().get();
    assert!(result.size as usize >= size_of::<api::LookupInstanceResult>());
}

#[test]
fn it_weighs_the_same_however_the_bytes_arrive() {
    let bytes = frame(&answer().encode_to_vec());
    let whole = weigh(LOOKUP, &bytes).unwrap();
    assert!(whole as usize > 300 * size_of::<api::LookupInstanceResult>());
    for size in [1, 2, 7, 64] {
        let mut weight = Weight::of(LOOKUP, &Budget::default());
        let pieces = bytes.chunks(size).map(|piece| weight.add(piece).unwrap());
        let handed_on = pieces.collect::<Vec<_>>().concat();
        assert_eq!(handed_on, bytes, "pieces of {size}");
        assert_eq!(weight.decoded, whole, "pieces of {size}");
    }
}

#[test]
fn m14_a_message_is_handed_on_when_it_is_complete_and_refused_when_its_length_is_known() {
    let message = frame(&answer().encode_to_vec());
    let (first, rest) = message.split_at(7);
    let mut weight = Weight::of(LOOKUP, &Budget::default());
    assert_eq!(weight.add(first), Ok(Bytes::new()));
    assert_eq!(
        weight.add(&[rest, first].concat()),
        Ok(message.clone().into())
    );
    // The second message has room, and the first one keeps none.
    assert!((message.len()..2 * message.len()).contains(&weight.held.capacity()));
    assert_eq!(weight.add(rest), Ok(message.clone().into()));
    assert_eq!(weight.rest(), Bytes::new());
    // A message that the end cuts off is handed on too: tonic reports it.
    assert_eq!(weight.add(first), Ok(Bytes::new()));
    assert_eq!(weight.rest(), Bytes::copy_from_slice(first));
    let large = Weight::of(LOOKUP, &Budget::default()).add(&[0, 1, 0, 0, 1]);
    assert_eq!(large.unwrap_err().wrong, Wrong::Bytes(16 * 1024 * 1024));
}

#[test]
fn empty_items_are_refused_before_they_are_decoded() {
    let items = frame(&[0x12, 0x00].repeat(7 * KIB * KIB));
    let refused = weigh(LOOKUP, &items).unwrap_err();
    let rpc = "LookupInstances".to_owned();
    let wrong = Wrong::Decoded;
    assert_eq!(refused, Refused { rpc, wrong });
    // A listing that contains only empty messages.
    assert!(weigh(LIST, &frame(&[]).repeat(2 * KIB * KIB)).is_err());
}

#[test]
fn each_rpc_has_its_own_most_of_bytes() {
    let probe = |length| weigh(PROBE, &frame(&unknown(length)));
    probe(64 * KIB - 10).unwrap();
    let refused = probe(64 * KIB).unwrap_err();
    assert_eq!(refused.rpc, "Probe");
    assert_eq!(refused.wrong, Wrong::Bytes(65_536));
    // Both a whole listing and each of its messages are limited. In a watch only each message is.
    let part = frame(&unknown(15 * KIB * KIB));
    weigh(LIST, &part.repeat(2)).unwrap();
    assert!(weigh(LIST, &part.repeat(3)).is_err());
    assert!(weigh(LIST, &frame(&unknown(17 * KIB * KIB))).is_err());
    let event = frame(&unknown(60 * KIB));
    weigh(WATCH, &event.repeat(100)).unwrap();
    assert!(weigh(WATCH, &frame(&unknown(65 * KIB))).is_err());
}

#[test]
fn what_is_no_message_is_refused_and_nothing_panics() {
    for wrong in [
        &[0x0a, 0xff, 0xff, 0x03, 0x00][..],
        &[0x12, 0x05, 0x00],
        &[0xff; 11],
        &[0x00, 0x00],
        &[0x0c],
        &[0x0b],
        &[0x0f],
        &[0x08],
    ] {
        let refused = weigh(LOOKUP, &frame(wrong)).unwrap_err();
        assert_eq!(refused.wrong, Wrong::Malformed, "{wrong:?}");
    }
    // An unknown group is skipped.
    weigh(LOOKUP, &frame(&[0x7b, 0x12, 0x00, 0x7c])).unwrap();
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = weigh(LOOKUP, &frame(&bytes));
        let _ = weigh(LIST, &bytes);
    }
}
