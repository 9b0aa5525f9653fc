//! The lines of `docs/behaviour.md`, and the IDs in a text.

/// One line, such as `- B-N2 Sets …`, with the heading above it.
pub(crate) struct Line {
    pub(crate) room: String,
    pub(crate) id: String,
    pub(crate) says: String,
}

impl Line {
    /// Whether the line is about a difference from upstream.
    pub(crate) fn differs(&self) -> bool {
        self.id.starts_with('▲')
    }
}

pub(crate) struct Behaviour {
    pub(crate) lines: Vec<Line>,
}

impl Behaviour {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut room = String::new();
        let mut lines: Vec<Line> = Vec::new();
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = line.strip_prefix("## ") {
                name.clone_into(&mut room);
                inside = false;
            } else if let Some(item) = line.strip_prefix("- ") {
                let (id, says) = item.split_once(' ').unwrap_or((item, ""));
                if ids_in(id) != [id] {
                    return Err(format!("line {}: {id} is no ID", number + 1));
                }
                if lines.iter().any(|line| line.id == id) {
                    return Err(format!("line {}: {id} for the second time", number + 1));
                }
                lines.push(Line {
                    room: room.clone(),
                    id: id.to_owned(),
                    says: says.to_owned(),
                });
                inside = true;
            } else if line.trim().is_empty() {
                inside = false;
            } else if let (true, Some(last)) = (inside, lines.last_mut()) {
                last.says.push(' ');
                last.says.push_str(line.trim());
            }
        }
        Ok(Self { lines })
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.lines.iter().any(|line| line.id == id)
    }
}

/// The IDs in a text: `B-` or `▲`, one capital letter, digits.
pub(crate) fn ids_in(text: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut before = ' ';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let head = ["B-", "▲"]
            .into_iter()
            .find(|head| rest.starts_with(head) && !before.is_alphanumeric());
        let number = head.and_then(|head| Some(head.len() + number_at(&rest[head.len()..])?));
        let (id, after) = rest.split_at(number.unwrap_or(first.len_utf8()));
        if number.is_some() {
            ids.push(id.to_owned());
        }
        (before, rest) = (first, after);
    }
    ids
}

/// The length of a whole word such as `N12` at the beginning of the text.
fn number_at(text: &str) -> Option<usize> {
    let digits = text.strip_prefix(|c: char| c.is_ascii_uppercase())?;
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric());
    (rest.len() < digits.len() && ends).then(|| text.len() - rest.len())
}

/// The IDs that the name of a test begins with: `b_n2_n7_…` is B-N2 and ▲N7.
pub(crate) fn ids_of_name(name: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut rest = name;
    loop {
        let (head, after) = match rest.strip_prefix("b_") {
            Some(after) => ("B-", after),
            None => ("▲", rest),
        };
        let (word, next) = after.split_once('_').unwrap_or((after, ""));
        let upper = word.to_uppercase();
        if word == upper || number_at(&upper) != Some(upper.len()) {
            return ids;
        }
        ids.push(format!("{head}{upper}"));
        rest = next;
    }
}

#[test]
fn ids_stand_at_the_beginning_of_a_name() {
    let ids = |name| ids_of_name(name).join(" ");
    assert_eq!(ids("b_n2_provider_id_only_where_empty"), "B-N2");
    assert_eq!(ids("n7_addresses_first"), "▲N7");
    assert_eq!(ids("b_s9_s19_pending_b_s1"), "B-S9 ▲S19");
    assert_eq!(ids("b_l2"), "B-L2");
    for none in ["a_node", "b_side", "b_12_x", "no1_x", "n_7_x", "x", ""] {
        assert_eq!(ids(none), "", "{none}");
    }
}

#[test]
fn ids_stand_anywhere_in_a_text() {
    assert_eq!(
        ids_in("(B-N2), ▲M10; B-L4."),
        ["B-N2", "▲M10", "B-L4"].map(str::to_owned)
    );
    for none in ["AB-N2", "B-N", "B-n2", "▲ N2", "N2", "B-N2x", "A▲N7"] {
        assert!(ids_in(none).is_empty(), "{none}");
    }
}

#[test]
fn lines_are_items_under_headings() {
    let text = "intro\n- none\n";
    assert!(Behaviour::parse(text).is_err());
    let text = "# T\nB-N1\n## Node\n\n- B-N1 One\n  and more.\n\nNot of it.\n- ▲N7 Two.\n";
    let read = Behaviour::parse(text).unwrap();
    let lines: Vec<_> = read
        .lines
        .iter()
        .map(|line| (line.room.as_str(), line.id.as_str(), line.says.as_str()))
        .collect();
    assert_eq!(
        lines,
        [("Node", "B-N1", "One and more."), ("Node", "▲N7", "Two.")]
    );
    assert!(read.lines[1].differs() && !read.lines[0].differs());
    assert!(Behaviour::parse("- B-N1 a\n- B-N1 b\n").is_err());
}
