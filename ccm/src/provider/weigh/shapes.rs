//! The shapes of messages, from the contract's own descriptors: how much memory their fields take.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cloud_provider_api::v1alpha1 as api;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use super::ALLOCATION;

/// The capacity of a list after its first item.
const LEAST_LIST: u64 = 4;
/// The most entries in one node of a map. The first entry allocates a whole node.
const MAP_PIECE: u64 = 11;
/// The fewest entries of a node when the map grows.
const LEAST_PIECE: u64 = 5;
/// The memory of a node besides its entries: the links to other nodes.
const PIECE_LINKS: u64 = 112;
/// A text, a list or a map without its content.
const HANDLE: u64 = 32;
/// A number, or the tag of a variant or of an option.
const WORD: u64 = 8;

/// All shapes of the contract.
pub(super) static SHAPES: LazyLock<Shapes> = LazyLock::new(Shapes::of_the_contract);

pub(super) struct Shapes {
    messages: Vec<Shape>,
    /// By the path of the RPC.
    answers: BTreeMap<String, Inner>,
}

pub(super) struct Shape {
    /// An upper bound of the message's size in memory, without the data behind its pointers.
    pub(super) size: u64,
    fields: Vec<(u64, Field)>,
}

/// The message that a field holds.
#[derive(Clone, Copy)]
pub(super) struct Inner(usize);

/// The memory that a field's values take besides their place in the message.
pub(super) struct Field {
    /// The first value.
    pub(super) first: u64,
    /// Each further one.
    pub(super) further: u64,
    /// The type of the value, if it is a message.
    pub(super) message: Option<Inner>,
    /// The memory that each byte of its content takes, if it is no message.
    pub(super) per_byte: u64,
}

impl Inner {
    pub(super) fn get(self) -> &'static Shape {
        &SHAPES.messages[self.0]
    }
}

impl Shape {
    /// The field with this number, and its index.
    pub(super) fn field(&self, number: u64) -> Option<(usize, &Field)> {
        let index = self
            .fields
            .binary_search_by_key(&number, |(number, _)| *number);
        let index = index.ok()?;
        self.fields.get(index).map(|(_, field)| (index, field))
    }
}

impl Shapes {
    fn of_the_contract() -> Self {
        // The build makes the descriptors, so they can be decoded.
        let set = FileDescriptorSet::decode(api::FILE_DESCRIPTOR_SET).unwrap_or_default();
        let described = Described::of(&set);
        let names: BTreeMap<&str, Inner> = described
            .0
            .keys()
            .map(String::as_str)
            .zip((0..).map(Inner))
            .collect();
        let messages = described.0.keys().map(|name| described.shape(name, &names));
        let mut answers = BTreeMap::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    if let Some(answer) = names.get(method.output_type()) {
                        answers.insert(path, *answer);
                    }
                }
            }
        }
        Self {
            messages: messages.collect(),
            answers,
        }
    }

    /// The shape of an RPC's answer.
    pub(super) fn answer(&'static self, path: &str) -> Option<&'static Shape> {
        self.answers.get(path).map(|inner| inner.get())
    }

    #[cfg(test)]
    pub(super) fn answers(&self) -> impl Iterator<Item = &str> {
        self.answers.keys().map(String::as_str)
    }
}

/// Messages by their full names, as fields refer to them.
struct Described<'a>(BTreeMap<String, &'a DescriptorProto>);

impl<'a> Described<'a> {
    fn of(set: &'a FileDescriptorSet) -> Self {
        let mut all = Self(BTreeMap::new());
        for file in &set.file {
            for message in &file.message_type {
                all.add(&format!(".{}", file.package()), message);
            }
        }
        all
    }

    fn add(&mut self, within: &str, message: &'a DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        self.0.insert(name, message);
    }

    fn shape(&self, name: &str, names: &BTreeMap<&str, Inner>) -> Shape {
        let fields = self.0.get(name).map_or(&[][..], |message| &message.field);
        let mut fields: Vec<_> = fields
            .iter()
            .map(|field| {
                (
                    u64::from(field.number().unsigned_abs()),
                    self.field(field, names),
                )
            })
            .collect();
        fields.sort_unstable_by_key(|(number, _)| *number);
        Shape {
            size: self.size(name),
            fields,
        }
    }

    fn field(&self, field: &FieldDescriptorProto, names: &BTreeMap<&str, Inner>) -> Field {
        let message = names.get(field.type_name()).copied();
        let size = self.value(field);
        let (first, further) = match (is_list(field), self.is_map(field)) {
            (false, _) => (0, 0),
            (true, false) => (LEAST_LIST * size + ALLOCATION, 2 * size),
            (true, true) => {
                let piece = MAP_PIECE * size + PIECE_LINKS;
                (piece, piece.div_ceil(LEAST_PIECE))
            }
        };
        let is_text = matches!(field.r#type(), Type::String | Type::Bytes);
        Field {
            first,
            further,
            message,
            // A number in a list may take a single byte on the wire.
            per_byte: if is_text { 1 } else { 2 * WORD },
        }
    }

    /// The memory of one value of a field.
    fn value(&self, field: &FieldDescriptorProto) -> u64 {
        match field.r#type() {
            Type::Message | Type::Group => self.size(field.type_name()),
            Type::String | Type::Bytes => HANDLE,
            _ => WORD,
        }
    }

    fn size(&self, name: &str) -> u64 {
        let Some(message) = self.0.get(name) else {
            return 0;
        };
        let mut one_of: BTreeMap<i32, u64> = BTreeMap::new();
        let mut size = 0;
        for field in &message.field {
            let own = if is_list(field) {
                HANDLE
            } else {
                self.value(field) + WORD
            };
            match field.oneof_index {
                Some(index) => {
                    let largest = one_of.entry(index).or_default();
                    *largest = own.max(*largest);
                }
                None => size += own,
            }
        }
        size + one_of.values().sum::<u64>()
    }

    fn is_map(&self, field: &FieldDescriptorProto) -> bool {
        let entry = self.0.get(field.type_name());
        let options = entry.and_then(|entry| entry.options.as_ref());
        options.is_some_and(prost_types::MessageOptions::map_entry)
    }
}

fn is_list(field: &FieldDescriptorProto) -> bool {
    field.label() == Label::Repeated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m14_no_message_of_the_contract_contains_itself() {
        fn visit(message: Inner, around: &mut Vec<usize>) {
            assert!(!around.contains(&message.0), "{around:?}");
            around.push(message.0);
            let fields = message.get().fields.iter();
            for inner in fields.filter_map(|(_, field)| field.message) {
                visit(inner, around);
            }
            around.pop();
        }
        for answer in SHAPES.answers.values() {
            visit(*answer, &mut Vec::new());
        }
    }
}
