//! docs/configuration.md lists the flags as the command has them.

use std::fmt::Write as _;

use super::*;

const BEGIN: &str =
    "<!-- flags: written by the test `docs_configuration_lists_the_flags_as_they_are` -->\n";
const END: &str = "<!-- end of flags -->\n";

/// All flags except `--help`, by group, as Markdown.
fn table() -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let command = command();
    let mut text = String::new();
    for group in command::GROUPS {
        let mut args: Vec<_> = command
            .get_arguments()
            .filter(|arg| arg.get_help_heading() == Some(group) && arg.get_id() != "help")
            .collect();
        args.sort_by_key(|arg| arg.get_long());
        if args.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n### {group}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
        );
        for arg in args {
            let name = arg.get_long().unwrap();
            let value = arg.get_value_names().map_or_else(String::new, |names| {
                names
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            let list = if command::takes_a_list(arg) {
                ", or a list"
            } else {
                ""
            };
            let default: Vec<_> = arg
                .get_default_values()
                .iter()
                .map(|value| value.to_string_lossy())
                .collect();
            let default = if default.is_empty() {
                String::new()
            } else {
                format!("`{}`", default.join(","))
            };
            let help = arg
                .get_long_help()
                .or(arg.get_help())
                .map(ToString::to_string);
            let _ = writeln!(
                text,
                "| `{name}` | {}{list} | {} | {} |",
                cell(&value),
                cell(&default),
                cell(&help.unwrap_or_default())
            );
        }
    }
    text.push('\n');
    text
}

/// Run it with UPDATE_DOCS=1 to update the list.
#[test]
fn docs_configuration_lists_the_flags_as_they_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    let command = "cargo test -p ccm --lib docs_configuration";
    testenv::document::holds(path.as_ref(), Some((BEGIN, END)), &table(), command);
}
