//! What the cluster says about this node: the policy that it has for the node is passed to the broker.

use crate::api::Label;
use crate::broker::Broker;
use crate::configurations::{Configurations, choose, read};
use crate::said::{Said, Topic};
use crate::settings::ClusterSettings;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tranche_core::broker::BrokerError;

/// After how long the broker gets the same configuration again: the node may have got a policy of its own, or lost one.
const AGAIN: Duration = Duration::from_secs(60);

/// Passes the configuration of this node to the broker.
pub(crate) struct ClusterPolicy {
    broker: Broker,
    dir: PathBuf,
    default: Option<String>,
    said: Said,
    /// Another policy is another offer: what watches this asks the broker at once, so that the slices follow.
    offers: watch::Sender<u64>,
    /// What the broker has taken last, and when.
    passed: Option<(String, Instant)>,
}

/// Takes the policy of the cluster away, because the cluster has none. It is tried until the broker answers; one that
/// is too old to know the command keeps no such policy.
pub(crate) async fn take_away(broker: Broker, offers: watch::Sender<u64>, again: Duration) {
    loop {
        match broker.policy(None).await {
            Ok(answer) if answer.changed => {
                tracing::info!("the policy that the cluster had for this node is removed");
                offers.send_modify(|changes| *changes += 1);
            }
            Err(BrokerError::Unreachable(_)) => {
                tokio::time::sleep(again).await;
                continue;
            }
            Ok(_) | Err(BrokerError::Refused(_)) => {}
        }
        return;
    }
}

impl ClusterPolicy {
    /// The ConfigMap that is mounted at `dir`.
    pub(crate) fn new(
        broker: Broker,
        dir: &Path,
        settings: &ClusterSettings,
        said: Said,
        offers: watch::Sender<u64>,
    ) -> Self {
        Self {
            broker,
            dir: dir.to_owned(),
            default: settings.config_default.clone(),
            said,
            offers,
            passed: None,
        }
    }

    /// Looks at the ConfigMap every `look`, and when the label of the node changes. It never returns. As long as the
    /// label is not known, nothing is passed: what counts is what counted before.
    pub(crate) async fn work(mut self, mut label: watch::Receiver<Label>, look: Duration) {
        loop {
            let now = label.borrow_and_update().clone();
            if let Some(label) = now {
                self.pass(label.as_deref()).await;
            }
            tokio::select! {
                Ok(()) = label.changed() => {}
                () = tokio::time::sleep(look) => {}
            }
        }
    }

    async fn pass(&mut self, label: Option<&str>) {
        let dir = self.dir.clone();
        let found = tokio::task::spawn_blocking(move || read(&dir)).await;
        let found = found.unwrap_or_else(|e| Err(e.to_string()));
        let chosen = found.and_then(|found| self.chosen(&found, label));
        match chosen {
            Ok((_, text)) if self.is_passed(&text) => {}
            Ok((key, text)) => self.give(&key, text).await,
            Err(why) => {
                self.passed = None;
                self.said
                    .warn(Topic::Policy, format!("the policy of this node stays as it is: {why}"));
            }
        }
    }

    fn is_passed(&self, text: &str) -> bool {
        let passed = self.passed.as_ref();
        passed.is_some_and(|(last, at)| last == text && at.elapsed() < AGAIN)
    }

    fn chosen(&self, found: &Configurations, label: Option<&str>) -> Result<(String, String), String> {
        let key = choose(found, label, self.default.as_deref())?;
        Ok((key.to_owned(), found.get(key).cloned().unwrap_or_default()))
    }

    async fn give(&mut self, key: &str, text: String) {
        match self.broker.policy(Some(text.clone())).await {
            Ok(answer) => {
                let is_new = self.passed.as_ref().is_none_or(|(last, _)| *last != text);
                self.passed = Some((text, Instant::now()));
                self.said.is_well(&Topic::Policy);
                if answer.changed {
                    self.offers.send_modify(|changes| *changes += 1);
                    let what = format!("the configuration {key} of the cluster is the policy of this node");
                    self.said.done("PolicyTaken", what);
                }
                for warning in answer.warnings.iter().filter(|_| is_new) {
                    tracing::warn!("{key}: {warning}");
                }
            }
            Err(e) => {
                // A refusal may have other reasons than the text, and is asked for again.
                let why = self.broker.explain(&e);
                let what =
                    format!("the configuration {key} is not taken, and the policy of this node stays as it is: {why}");
                self.said.warn(Topic::Policy, what);
            }
        }
    }
}
