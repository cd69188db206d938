//! `/v1/models`, with the fields of both families (X1, M9).

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use serde::Serialize;

/// One model. Neither family's clients miss a field, and each ignores the other's.
///
/// The times are those of the epoch: the gateway knows no better, and Anthropic's own API says the same where a date is
/// unknown.
#[derive(Serialize)]
struct Card<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: &'a str,
    created_at: &'static str,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Card<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

impl<'a> Card<'a> {
    fn new(id: &'a str, owner: &'a str) -> Card<'a> {
        Card {
            id,
            object: "model",
            created: 0,
            owned_by: owner,
            kind: "model",
            display_name: id,
            created_at: "1970-01-01T00:00:00Z",
        }
    }
}

/// The answer for one model.
pub(super) fn card(id: &str, owner: &str) -> Bytes {
    json(&Card::new(id, owner))
}

/// The answer for all of them, as `(id, owner)` in the order given.
pub(super) fn list<'a>(models: impl Iterator<Item = (&'a str, &'a str)>) -> Bytes {
    let data: Vec<Card<'a>> = models.map(|(id, owner)| Card::new(id, owner)).collect();
    let (first_id, last_id) = (data.first().map(|card| card.id), data.last().map(|card| card.id));
    json(&List { object: "list", data, has_more: false, first_id, last_id })
}

fn json(value: &impl Serialize) -> Bytes {
    // Printing plain structs of texts and numbers cannot fail.
    let text: String = serde_json::to_string(value).unwrap_or_default();
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_fields_of_both_families() {
        let page = list([("smart", "surefoot"), ("u1/a\"b", "u1")].into_iter());
        insta::assert_snapshot!(core::str::from_utf8(&page).unwrap().replace("},{", "},\n{"), @r#"
        {"object":"list","data":[{"id":"smart","object":"model","created":0,"owned_by":"surefoot","type":"model","display_name":"smart","created_at":"1970-01-01T00:00:00Z"},
        {"id":"u1/a\"b","object":"model","created":0,"owned_by":"u1","type":"model","display_name":"u1/a\"b","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"smart","last_id":"u1/a\"b"}
        "#);
    }

    #[test]
    fn an_empty_list_has_no_first_and_no_last() {
        let page: serde_json::Value = serde_json::from_slice(&list(core::iter::empty())).unwrap();
        assert_eq!((&page["first_id"], &page["has_more"]), (&serde_json::Value::Null, &false.into()));
        assert_eq!(page["data"], serde_json::json!([]));
    }
}
