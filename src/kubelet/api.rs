//! The API server: the label of this node, and events about it.

use crate::configurations::LABEL;
use crate::said::{Notice, Said, Topic};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tranche_core::text::shown;

/// Who writes the events.
const REPORTER: &str = "tranche-kubelet";

/// Where events about nodes are: a node is in no namespace.
const NAMESPACE: &str = "default";

/// How long a fault is not written again. What was done is always written: it may be done for a second time.
const PAUSE: Duration = Duration::from_secs(300);

/// The longest note of an event, in bytes (`events.k8s.io/v1`).
const MOST_NOTE: usize = 1024;

/// The value of the label of this node: `None` as long as nobody has said it.
pub type Label = Option<Option<String>>;

/// A client with the service account of this pod, or of the file that `KUBECONFIG` names.
///
/// # Errors
/// Returns why the API server cannot be used.
pub async fn client() -> Result<Client, String> {
    Client::try_default()
        .await
        .map_err(|e| format!("no access to the API server: {}", why(&e)))
}

/// Sends the value of the label [`LABEL`] of the node `name` whenever it differs. It never returns. While the API
/// server does not answer, the last value stays.
pub async fn watch_label(client: Client, name: String, label: watch::Sender<Label>, mut said: Said) {
    let nodes = watcher::watch_object(Api::<PartialObjectMeta<Node>>::all(client), &name).default_backoff();
    let mut nodes = std::pin::pin!(nodes);
    while let Some(node) = nodes.next().await {
        let value = match node {
            Ok(node) => node.and_then(|node| node.labels().get(LABEL).cloned()),
            Err(e) => {
                let what = format!("the label {LABEL} of this node is not known: {}", why(&e));
                said.warn(Topic::Label, what);
                continue;
            }
        };
        said.is_well(&Topic::Label);
        label.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&value);
            *known = Some(value);
            is_new
        });
    }
}

/// Writes events about the node `name`, until nobody sends any. One that the API server does not take, or not within
/// `patience`, is dropped: the log has it too.
pub async fn write_events(client: Client, name: String, patience: Duration, mut notices: mpsc::Receiver<Notice>) {
    let api = Api::<Event>::namespaced(client, NAMESPACE);
    let mut written = Written::default();
    // The server is away for long, or takes no events: one line says so.
    let mut is_away = false;
    while let Some(notice) = notices.recv().await {
        if notice.is_fault && !written.is_due(&notice.text, Instant::now()) {
            continue;
        }
        let (params, event) = (PostParams::default(), event(&name, notice));
        match within(patience, api.create(&params, &event)).await {
            Ok(_) => is_away = false,
            Err(e) if !is_away => {
                is_away = true;
                tracing::warn!("the API server takes no events: {}", why(&e));
            }
            Err(_) => {}
        }
    }
}

/// The answer to a call, if it comes within `patience`: a connection that is cut without a word has no end of its own.
///
/// # Errors
/// Returns the error of the call, or says that nothing came.
pub(crate) async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    let silent = |_| kube::Error::Service(format!("nothing came within {} s", patience.as_secs_f32()).into());
    timeout(patience, call).await.map_err(silent)?
}

/// An error with its causes. The errors of kube name the first one at most: `client error (Connect)`.
pub(crate) fn why(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let part = e.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = e.source();
    }
    // The name that kube has for a question without an answer says nothing to people who read the event of a pod, and
    // behind a refusal it has all fields of the answer.
    let text = text.replace("ServiceError: ", "the API server does not answer: ");
    let text = text.split(" (Status { ").next().unwrap_or_default();
    shown(text).to_string()
}

/// When each text was written: a fault that comes and goes is an event now and then, and not each time.
#[derive(Debug, Default)]
struct Written(BTreeMap<String, Instant>);

impl Written {
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        let is_due = !self.0.contains_key(text);
        if is_due {
            self.0.insert(text.to_owned(), now);
        }
        is_due
    }
}

/// An event about the node `name`. `kubectl describe node` finds it by the name in the place of the UID, as those of
/// the kubelet.
fn event(name: &str, notice: Notice) -> Event {
    let mut note = notice.text;
    let end = (0..=MOST_NOTE).rev().find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or_default());
    let now = jiff::Timestamp::now();
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.tranche-")),
            ..ObjectMeta::default()
        },
        action: Some("Serve".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note),
        reason: Some(notice.reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(name.to_owned()),
        type_: Some(if notice.is_fault { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn an_error_is_what_people_need_of_it() {
        let error = kube::Error::Service("connection reset by peer".into());
        assert_eq!(why(&error), "the API server does not answer: connection reset by peer");
        let status = Status::failure("nodes \"gpu1\" not found", "NotFound");
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(why(&error), "ApiError: nodes \"gpu1\" not found: NotFound");
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_server_takes() {
        let notice = Notice {
            is_fault: true,
            reason: "Policy",
            text: format!("x{}", "ä".repeat(MOST_NOTE)),
        };
        assert_eq!(event("gpu1", notice).note.unwrap().len(), MOST_NOTE - 1);
    }

    #[test]
    fn a_fault_that_comes_and_goes_is_written_now_and_then() {
        let mut written = Written::default();
        let now = Instant::now();
        assert!(written.is_due("a", now));
        assert!(written.is_due("b", now));
        assert!(!written.is_due("a", now + PAUSE / 2));
        assert!(written.is_due("a", now + PAUSE));
        assert_eq!(written.0.len(), 1);
    }
}
