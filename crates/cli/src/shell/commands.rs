//! The table of commands: names, usage, help; and which function runs each.
//!
//! The number of arguments is checked by the table before a command runs, so that each may take its
//! own for granted.

use super::session::{Next, Refusal, Session};
use super::{
    changes, data, kill, members, operator, option, quota, rights, status, tenant, throttle,
    transaction,
};
use std::io::Write;
use std::ops::RangeInclusive;

/// A command of the shell.
pub struct Command {
    pub name: &'static str,
    /// How many arguments it may have.
    pub arguments: RangeInclusive<usize>,
    /// Its name and arguments.
    pub usage: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// What else there is to know.
    pub more: &'static str,
}

const fn command(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    usage: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    Command { name, arguments, usage, about, more }
}

/// All commands, in the order of the alphabet.
pub const ALL: &[Command] = &[
    command(
        "begin",
        0..=0,
        "begin",
        "begins a transaction of several commands",
        "It ends with commit or rollback, or when the database refuses a command.",
    ),
    command(
        "changes",
        1..=102,
        "changes register NAME [PREFIX...]|list|tail NAME [WORD...]|remove NAME",
        "registers, lists, follows and removes streams of changes",
        "tail prints until Ctrl-C, behind what was acknowledged; its words: a version to begin behind, json, once (ends when everything was printed that is there), acknowledge. To register, remove and acknowledge needs writemode on.",
    ),
    command("clear", 1..=1, "clear KEY", "removes a key", "Needs writemode on."),
    command(
        "clearrange",
        2..=2,
        "clearrange BEGIN END",
        "removes all keys from BEGIN to before END",
        "Needs writemode on.",
    ),
    command(
        "commit",
        0..=0,
        "commit",
        "commits the transaction that was begun",
        "If it fails the transaction is rolled back, and can be begun anew.",
    ),
    command(
        "configure",
        0..=16,
        "configure [WORD...]",
        "shows how the database is configured, or compares with it; changes how many servers of a cluster vote",
        "In a cluster single, double and triple are 1, 3 and 5 servers that vote. Other words as in FoundationDB: a storage engine, NAME=VALUE. Those are settled when a database is made; what is asked for and isn't so is named, with what to do.",
    ),
    command(
        "coordinators",
        0..=15,
        "coordinators [auto|IP:PORT...]",
        "shows which servers of a cluster vote, or changes that",
        "They have to be members: a server with an empty directory and the cluster file becomes one. With auto whoever can votes.",
    ),
    command("defaulttenant", 0..=0, "defaulttenant", "works in no tenant again", ""),
    command(
        "exclude",
        0..=64,
        "exclude [failed [force]] [IP[:PORT]...]",
        "has servers of a cluster vote no longer, so that they can be taken away; shows which",
        "Waits until it is so; one that coordinators has named keeps its vote until others are named, or `coordinators auto`. \
         With failed they are lost for good, and are no members any more; with force even if they answer.",
    ),
    command(
        "exit",
        0..=0,
        "exit",
        "leaves the shell",
        "A transaction that was begun is rolled back. So do quit, and Ctrl-D.",
    ),
    command("get", 1..=1, "get KEY", "shows the value of a key", ""),
    command(
        "getkey",
        1..=3,
        "getkey [<|<=|>=|>] KEY [OFFSET]",
        "shows the key that a selector finds",
        "The first key >= KEY unless another relation is given, and OFFSET keys further, backward if negative.",
    ),
    command(
        "getlocation",
        1..=1,
        "getlocation KEY",
        "shows the servers that a key is read from",
        "All servers of a database have all of its rows; a database in the process says 127.0.0.1:4500.",
    ),
    command(
        "getrange",
        1..=3,
        "getrange BEGIN [END] [LIMIT]",
        "shows keys and values from BEGIN to before END",
        "Without END, all keys that begin with BEGIN. At most LIMIT of them, 25 unless given; a negative LIMIT begins at the end.",
    ),
    command(
        "getrangekeys",
        1..=3,
        "getrangekeys BEGIN [END] [LIMIT]",
        "shows keys from BEGIN to before END",
        "As getrange, without the values.",
    ),
    command(
        "getversion",
        0..=0,
        "getversion",
        "shows the read version",
        "That of the transaction if one was begun, else the newest.",
    ),
    command(
        "grant",
        2..=6,
        "grant ROLE SUBJECT [SCOPE]",
        "gives somebody a right, and says so to all servers",
        "ROLE: reader, writer or operator. SUBJECT: cert RULE (as --tls-verify-peers has them), token CLAIM=VALUE,..., address IP[/BITS], user NAME (of the server's machine, or his number), or anybody. \
         SCOPE: all, prefix KEY, range BEGIN END, tenant NAME, series, or metric NAME (or cpu.* for all that begin so). The first one has to be an operator: from then on only grants say who may what.",
    ),
    command(
        "help",
        0..=1,
        "help [COMMAND]",
        "shows what there is",
        "Also: help escaping, help options.",
    ),
    command(
        "hotrange",
        0..=0,
        "hotrange",
        "shows the ranges that are read, written and in conflict most",
        "With their share of what the server that answers has sampled lately; status json has all of them, as cluster.plinth.hot.",
    ),
    command(
        "include",
        1..=64,
        "include all|IP[:PORT]...",
        "lets servers of a cluster vote again",
        "What exclude has done. Those that were lost for good come back as new ones.",
    ),
    command(
        "kill",
        0..=64,
        "kill [list|all|clients|IP[:PORT]...]",
        "lists servers and clients; servers begin anew, connections of clients are closed",
        "Needs a server. `all` servers, one after the other, each when the one before is back: they end cleanly, and have to be started again by what looks after them. \
         `clients`: all but the shell's own connections; clients connect again by themselves, and their commits on the way have an unknown result.",
    ),
    command(
        "lock",
        0..=0,
        "lock",
        "keeps out all transactions but lock-aware ones",
        "Shows the UID that unlock asks for.",
    ),
    command(
        "option",
        0..=3,
        "option [on|off NAME [ARGUMENT]]",
        "sets transaction options, or shows those that are set",
        "For the transaction that was begun, else for all to come. See help options for the names.",
    ),
    command("quit", 0..=0, "quit", "leaves the shell", "As exit."),
    command(
        "quota",
        1..=8,
        "quota set WHO NAME=AMOUNT...|get [WHO]|clear WHO",
        "bounds how much somebody may read and write in a second, and hold",
        "WHO: cert RULE, token CLAIM=VALUE,..., address IP[/BITS], user NAME, tenant NAME, or * for everybody who has none of his own. \
         NAME: read or write (AMOUNT as 10MB/s, 512KiB/s), connections, watches, snapshots; none takes a bound away. \
         Each server holds to it by itself, within a second. Whoever is over a rate waits. status details shows what is used.",
    ),
    command(
        "reset",
        0..=0,
        "reset",
        "forgets what the transaction read and wrote, and goes on with it",
        "",
    ),
    command(
        "revoke",
        1..=6,
        "revoke ROLE SUBJECT [SCOPE]|everything",
        "takes a right back, for open connections too",
        "The words are those that roles shows. The last operator stays; everything takes all rights back, so that whoever connects may everything.",
    ),
    command("roles", 0..=0, "roles", "shows who has which rights", ""),
    command(
        "rollback",
        0..=0,
        "rollback",
        "ends the transaction that was begun, without a trace",
        "",
    ),
    command("set", 2..=2, "set KEY VALUE", "sets a key to a value", "Needs writemode on."),
    command("sleep", 1..=1, "sleep SECONDS", "waits", ""),
    command(
        "status",
        0..=1,
        "status [minimal|details|json]",
        "shows how the database is",
        "json gives the whole document.",
    ),
    command(
        "tenant",
        1..=5,
        "tenant create|delete|get NAME|rename OLD NEW|list [BEGIN] [END] [LIMIT]",
        "makes, removes and shows tenants",
        "A tenant is a part of the keys with a name; only an empty one can be deleted. get NAME JSON gives the whole document.",
    ),
    command(
        "throttle",
        1..=6,
        "throttle on tag TAG RATE [SECONDS] [PRIORITY]|off tag TAG|list",
        "limits how many transactions with a tag begin in a second",
        "For an hour and for priority default and below, unless said otherwise. It holds within a second.",
    ),
    command(
        "unlock",
        1..=2,
        "unlock UID [force]",
        "takes the lock away",
        "UID as lock has shown it. A restore's lock goes with the restore; with force, a lock of which that can't be told goes, too.",
    ),
    command(
        "usetenant",
        0..=1,
        "usetenant [NAME]",
        "works in a tenant from now on, or shows in which",
        "Keys are those of the tenant alone, until defaulttenant.",
    ),
    command("waitconnected", 0..=0, "waitconnected", "waits until the database can be reached", ""),
    command("waitopen", 0..=0, "waitopen", "waits until transactions can begin", ""),
    command(
        "writemode",
        1..=1,
        "writemode on|off",
        "allows set, clear and clearrange, or forbids them",
        "They are forbidden when the shell starts. Commands of operators ask for no leave.",
    ),
];

const ESCAPING: &str = "\
Keys and values are bytes. On a line and in what is shown:

  \\xHH    the byte with this number, two hexadecimal digits
  \\\\      a backslash
  \\\"      a quote
  \\;      a semicolon, which otherwise separates commands
  \"\\ \"    a space, which otherwise separates words

Words with spaces can also stand in double quotes: set \"full name\" \"Ada Lovelace\"

A word that begins with a parenthesis is a tuple, which FoundationDB's layers make keys of:

  (\"app\", 1, 2.5, true, null, b\"\\x00\", (\"nested\", 7))

getrange (\"app\") shows all keys whose tuples begin so.
";

/// The command of this name.
pub fn find(name: &str) -> Option<&'static Command> {
    ALL.iter().find(|command| command.name.eq_ignore_ascii_case(name))
}

/// A command whose name is what was meant, perhaps: one that begins so, or has a letter more, less
/// or other.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = || ALL.iter().map(|command| command.name);
    let begins = |known: &&str| name.len() >= 2 && known.starts_with(name);
    names().find(begins).or_else(|| names().find(|known| differ_by_one(known, name)))
}

/// Whether two words differ by one letter, or by two neighbours that changed places.
fn differ_by_one(one: &str, two: &str) -> bool {
    let (one, two) = (one.as_bytes(), two.as_bytes());
    let same = one.iter().zip(two).take_while(|(a, b)| a == b).count();
    let (one, two) = (&one[same..], &two[same..]);
    let after = |word: &[u8], count: usize| word.get(count..).map(<[u8]>::to_vec);
    let swapped = one.len() >= 2 && two.len() >= 2 && one[0] == two[1] && one[1] == two[0];
    (after(one, 1) == after(two, 1) && !one.is_empty())
        || after(one, 1).is_some_and(|rest| rest == two)
        || after(two, 1).is_some_and(|rest| rest == one)
        || (swapped && one[2..] == two[2..])
}

/// Runs the command of this name, whose number of arguments is right.
pub fn execute<Out: Write>(
    session: &mut Session<Out>,
    name: &str,
    arguments: &[Vec<u8>],
) -> Result<Next, Refusal> {
    match name {
        "get" => data::get(session, &arguments[0]),
        "getkey" => data::get_key(session, arguments),
        "getlocation" => data::get_location(session, &arguments[0]),
        "getrange" => data::get_range(session, arguments, true),
        "getrangekeys" => data::get_range(session, arguments, false),
        "set" => data::set(session, &arguments[0], &arguments[1]),
        "clear" => data::clear(session, &arguments[0]),
        "clearrange" => data::clear_range(session, &arguments[0], &arguments[1]),
        "writemode" => data::write_mode(session, &arguments[0]),
        "begin" => transaction::begin(session),
        "commit" => transaction::commit(session),
        "rollback" => transaction::rollback(session),
        "reset" => transaction::reset(session),
        "getversion" => transaction::get_version(session),
        "sleep" => transaction::sleep(session, &arguments[0]),
        "option" => option::option(session, arguments),
        "configure" if members::configure(session, arguments)? => Ok(()),
        "configure" => operator::configure(session, arguments),
        "coordinators" => members::coordinators(session, arguments),
        "exclude" => members::exclude(session, arguments),
        "include" => members::include(session, arguments),
        "kill" => kill::kill(session, arguments),
        "grant" => rights::grant(session, arguments),
        "revoke" => rights::revoke(session, arguments),
        "roles" => rights::roles(session),
        "quota" => quota::quota(session, arguments),
        "changes" => changes::changes(session, arguments),
        "defaulttenant" => tenant::default_tenant(session),
        "tenant" => tenant::tenant(session, arguments),
        "usetenant" => tenant::use_tenant(session, arguments.first()),
        "waitconnected" | "waitopen" => transaction::wait_open(session),
        "lock" => operator::lock(session),
        "unlock" => operator::unlock(session, arguments),
        "throttle" => throttle::throttle(session, arguments),
        "status" => status::status(session, arguments.first()),
        "hotrange" => status::hot_ranges(session),
        "help" => help(session, arguments.first()),
        _ => return Ok(Next::Exit),
    }?;
    Ok(Next::GoOn)
}

fn help<Out: Write>(session: &mut Session<Out>, topic: Option<&Vec<u8>>) -> Result<(), Refusal> {
    let Some(topic) = topic else {
        for command in ALL {
            writeln!(session.out, "  {:34} {}", command.usage, command.about)?;
        }
        writeln!(session.out, "\nSee help COMMAND, help escaping, help options.")?;
        return Ok(());
    };
    let topic = plinth::printable(topic);
    match (topic.as_str(), find(&topic)) {
        ("escaping", _) => session.out.write_all(ESCAPING.as_bytes())?,
        ("options", _) => option::names(&mut session.out)?,
        (_, Some(command)) => {
            writeln!(session.out, "{}\n\n  {}.", command.usage, command.about)?;
            if !command.more.is_empty() {
                writeln!(session.out, "  {}", command.more)?;
            }
        }
        _ => {
            return Err(Refusal::Usage(match super::elsewhere::explain(&topic) {
                Some(why) => format!("`{topic}` does nothing here: {why}"),
                None => format!("there is no command `{topic}`"),
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order_and_their_usage_begins_with_their_name() {
        assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(ALL.iter().all(|command| command.usage.split(' ').next() == Some(command.name)));
    }

    #[test]
    fn a_slip_of_the_finger_finds_its_command() {
        let meant = [
            ("gte", "get"),
            ("stauts", "status"),
            ("roll", "rollback"),
            ("sett", "set"),
            ("qit", "quit"),
        ];
        for (typed, meant) in meant {
            assert_eq!(nearest(typed), Some(meant), "{typed}");
        }
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest(""), None);
    }
}
