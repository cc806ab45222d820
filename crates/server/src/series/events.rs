//! What the listeners of series and their rules tell as it happens: events of the crate `tracing`,
//! as `events.rs` has those of the server.

use std::net::SocketAddr;

/// Time series are taken in and asked for from now on.
pub(super) fn opened() {
    tracing::info!("series are open");
}

/// This server owns the series of a database that several share: it has the lease.
pub(super) fn ours() {
    tracing::info!("series are open: this server has the lease");
}

/// It doesn't any more.
pub(super) fn lost() {
    tracing::warn!("the lease of the series was lost: points are posted to whoever has it");
}

/// This server owns a part of the series, which several share.
pub(super) fn part_ours(part: usize) {
    tracing::info!(part, "a part of the series is open: this server has the lease");
}

/// Others can't ask this server for what it has of its parts.
pub(super) fn unheard() {
    tracing::warn!(
        "without a listener series-http this server owns parts of the series only while no other server does: others could ask it for nothing"
    );
}

/// It doesn't any more, and didn't want that.
pub(super) fn part_lost(part: usize) {
    tracing::warn!(part, "the lease of a part of the series was lost");
}

/// It doesn't any more: another server has too few.
pub(super) fn handed_over(part: usize) {
    tracing::info!(part, "a part of the series was handed over: another server has too few");
}

/// The place of the series is not divided as this server took it to be.
pub(super) fn divided_otherwise() {
    tracing::info!("series are divided otherwise than it was known: they are opened anew");
}

/// It isn't known which servers share the series: those that have parts keep them.
pub(super) fn members_unknown(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "it can't be seen which servers share the series");
}

/// Another one owns them.
pub(super) fn elsewhere(name: &str, address: &str) {
    tracing::info!(
        name,
        address,
        "another server has the lease of the series: points are posted to it"
    );
}

/// Time series can be neither written nor asked for, and why. Opening them is tried again every
/// second.
pub(super) fn unavailable(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "series can't be opened; keys are served meanwhile");
}

/// The clock by which points are too old is ahead of what it can be.
pub(super) fn clock_ahead(seconds: u64) {
    tracing::error!(
        seconds,
        "this server's clock is ahead of those by which retention went so far: points go by theirs, until it can be right"
    );
}

/// What is too old can't be deleted, and why.
pub(super) fn not_forgotten(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "points that are too old can't be deleted: tried again");
}

/// What was kept of rules can't be read: nothing is evaluated before it can.
pub(super) fn rules_unknown(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "what was kept of rules can't be read: tried again every second");
}

/// What was kept of a group makes no sense: its alerts begin anew.
pub(super) fn rules_not_restored(group: &str, why: &str) {
    tracing::warn!(group, why, "what was kept of a group of rules makes no sense");
}

/// How far a group is can't be kept, and why; told at the beginning of a time in which it can't.
pub(super) fn rules_not_kept(group: &str, why: &str) {
    tracing::warn!(group, why, "how far a group of rules is can't be kept: a restart forgets it");
}

/// What evaluates rules has failed, which is a fault of ours: it begins again.
pub(super) fn rules_failed(why: &plinth_env::TaskFailed) {
    tracing::error!(error = %why, "the evaluation of rules has failed: it begins again soon");
}

/// Files of rules have changed.
pub(super) fn rules_changed() {
    tracing::info!("files of rules have changed: they hold from now on");
}

/// Files of rules have changed and can't be read.
pub(super) fn rules_not_read(why: &str) {
    tracing::error!(why, "files of rules make no sense: the rules before hold");
}

/// The configuration of what is scraped makes sense again.
pub(super) fn scraping_changed() {
    tracing::info!("what is to be scraped makes sense again, and holds from now on");
}

/// It makes none.
pub(super) fn scraping_not_read(why: &str) {
    tracing::error!(why, "what is to be scraped makes no sense: targets before are scraped on");
}

/// An Alertmanager can't be told, and why; told at the beginning of a time in which it can't.
pub(super) fn alertmanager_away(url: &str, why: &str) {
    tracing::warn!(url, why, "an Alertmanager can't be told of alerts: they wait");
}

/// An Alertmanager refuses alerts, and would refuse them again.
pub(super) fn alerts_refused(url: &str, why: &str) {
    tracing::warn!(url, why, "an Alertmanager refuses alerts: it won't be told of them");
}

/// It can again.
pub(super) fn alertmanager_back(url: &str) {
    tracing::info!(url, "the Alertmanager is told of alerts again");
}

/// A connection to a port of lines was closed because HTTP was spoken there.
pub(super) fn http_on_lines(peer: SocketAddr) {
    tracing::debug!(%peer, "a request of HTTP on a port that takes points on lines: closed");
}

/// Points in datagrams made no sense: how many messages since this was told last, and what was
/// wrong with the first of this sender's.
pub(super) fn datagram_refused(from: SocketAddr, messages: u64, why: &str) {
    tracing::warn!(%from, messages, why, "points in datagrams refused");
}
