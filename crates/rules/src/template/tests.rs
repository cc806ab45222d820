//! What Prometheus' own program made of the same templates, and what must not become of hostile
//! ones.
//!
//! The expected texts are those of `promtool test rules`, version 2.42, for these values.

use super::*;
use plinth_env::{Env, Open, block_on};

fn expanded(text: &str, value: f64) -> String {
    let labels: Labels = [("__name__", "m"), ("a", "1")].into_iter().collect();
    let other: Labels = [("__name__", "m"), ("a", "0")].into_iter().collect();
    let outside = Outside::new("http://p:9090/x/", BTreeMap::from([("dc".into(), "eu".into())]));
    let mut answers = Answers::default();
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(why) => return why,
    };
    loop {
        match template.expand(&Data::new(&labels, value, 1_500_000_000), &outside, &answers) {
            Expanded::Text(text) => return text,
            Expanded::Failed(why) => return format!("!{why}"),
            Expanded::Asks(query) => {
                let series = match query.as_str() {
                    "m" => vec![(labels.clone(), value), (other.clone(), 1.0)],
                    _ => Vec::new(),
                };
                answers.add(query, Ok(series));
            }
        }
    }
}

/// Figures of promtool 2.42.
#[test]
fn numbers_are_printed_as_go_does() {
    let all = r#"{{ $value }} {{ humanize $value }} {{ humanize1024 $value }} {{ humanizeDuration $value }} {{ humanizePercentage $value }} {{ humanizeTimestamp $value }}"#;
    for (value, text) in [
        (1.0, "1 1 1 1s 100% 1970-01-01 00:00:01 +0000 UTC"),
        (
            1_234_567.5,
            "1.2345675e+06 1.235M 1.177Mi 14d 6h 56m 7s 1.235e+08% 1970-01-15 06:56:07.5 +0000 UTC",
        ),
        (0.000012, "1.2e-05 12u 1.2e-05 12us 0.0012% 1970-01-01 00:00:00 +0000 UTC"),
        (100_000.0, "100000 100k 97.66ki 1d 3h 46m 40s 1e+07% 1970-01-02 03:46:40 +0000 UTC"),
        (1e6, "1e+06 1M 976.6ki 11d 13h 46m 40s 1e+08% 1970-01-12 13:46:40 +0000 UTC"),
        (-0.5, "-0.5 -500m -0.5 -500ms -50% 1969-12-31 23:59:59.5 +0000 UTC"),
        (93_784.5, "93784.5 93.78k 91.59ki 1d 2h 3m 4s 9.378e+06% 1970-01-02 02:03:04.5 +0000 UTC"),
        (0.0, "0 0 0 0s 0% 1970-01-01 00:00:00 +0000 UTC"),
        (f64::NAN, "NaN NaN NaN NaN NaN% NaN"),
        (f64::INFINITY, "+Inf +Inf +Inf +Inf +Inf% +Inf"),
    ] {
        assert_eq!(expanded(all, value), text);
    }
}

/// Figures of promtool 2.42.
#[test]
fn formats_are_those_of_go() {
    let all = r#"{{ printf "%v|%g|%.2f|%d|%s|%5.1f|%-6.1f|%06.1f|%e|%+.0f|%q|%x" $value $value $value $value $value $value $value $value $value $value "a" "hi" }}"#;
    for (value, text) in [
        (
            1.0,
            r#"1|1|1.00|%!d(float64=1)|%!s(float64=1)|  1.0|1.0   |0001.0|1.000000e+00|+1|"a"|6869"#,
        ),
        (
            -0.5,
            r#"-0.5|-0.5|-0.50|%!d(float64=-0.5)|%!s(float64=-0.5)| -0.5|-0.5  |-000.5|-5.000000e-01|-0|"a"|6869"#,
        ),
        (
            f64::INFINITY,
            r#"+Inf|+Inf|+Inf|%!d(float64=+Inf)|%!s(float64=+Inf)| +Inf|+Inf  |  +Inf|+Inf|+Inf|"a"|6869"#,
        ),
        (
            f64::NAN,
            r#"NaN|NaN|NaN|%!d(float64=NaN)|%!s(float64=NaN)|  NaN|NaN   |   NaN|NaN|+NaN|"a"|6869"#,
        ),
    ] {
        assert_eq!(expanded(all, value), text);
    }
    assert_eq!(
        expanded(r#"{{ printf "%s %d" 1 "a" "extra" }}"#, 0.0),
        "%!s(int=1) %!d(string=a)%!(EXTRA string=extra)"
    );
    assert_eq!(
        expanded(r#"{{ printf "%t %5d|%-5d|%05d|%x" true 3 3 3 255 }}"#, 0.0),
        "true     3|3    |00003|ff"
    );
    assert_eq!(
        expanded(r#"{{ printf "%d" }}{{ printf "100%%" }}{{ printf "%" }}"#, 0.0),
        "%!d(MISSING)100%%!(NOVERB)"
    );
}

/// Figures of promtool 2.42.
#[test]
fn functions_and_blocks_are_those_of_prometheus() {
    for (text, wanted) in [
        ("{{ $labels }} {{ $labels.nope }}|{{ .Labels.a }}", "map[__name__:m a:1] |1"),
        (
            r#"{{ stripPort "a.b:80" }} {{ stripDomain "a.b:80" }} {{ stripDomain "a.b.c" }} {{ stripDomain "10.1.2.3:9" }}"#,
            "a.b a:80 a 10.1.2.3:9",
        ),
        (r#"{{ reReplaceAll "(.)b" "$1x" "abab" }} {{ match "a.*" "xab" }}"#, " true"),
        (r#"{{ reReplaceAll "(.)b" "${1}x" "abab" }}"#, "axax"),
        (r#"{{ toUpper "a" | toLower | printf "%s-%d" "z" }}"#, "z-%!d(string=a)"),
        (r#"{{ parseDuration "1h30m" }} {{ len $labels }} {{ index $labels "a" }}"#, "5400 2 1"),
        (
            r#"{{ title "aa bB foo-bar foo_bar don't x:y 3ab" }}"#,
            "Aa BB Foo-Bar Foo_bar Don't X:y 3ab",
        ),
        (
            r#"{{ range query "m" }}{{ .Labels.a }}={{ .Value }};{{ end }}{{ with query "nothing" }}x{{ else }}none{{ end }}"#,
            "1=2;0=1;none",
        ),
        (
            r#"{{ query "m" | first | value }} {{ (query "m" | first).Labels.a }} {{ range $i, $e := query "m" }}{{ $i }}{{ $e.Value }}{{ end }} {{ query "m" | first | label "a" }} {{ range sortByLabel "a" (query "m") }}{{ .Labels.a }}{{ end }}"#,
            "2 1 0211 1 01",
        ),
        (
            r#"{{ if gt $value 5.0 }}big{{ else if eq $value 2.0 }}two{{ else }}small{{ end }} {{- " x" -}}   y {{/* c */}}z"#,
            "two xy z",
        ),
        (
            r#"{{ and 1 0 }} {{ or 0 "x" }} {{ not true }} {{ eq 1 2 1 }} {{ print 1 2 "a" "b" 3 }} {{ println "x" }}{{ html "<a>" }} {{ urlquery "a b&" }} {{ slice "abcdef" 1 3 }} {{ 1.0 }} {{ 1e6 }} {{ true }} {{ 0x10 }} {{ $x := 1 }}{{ $x = 2 }}{{ $x }}"#,
            "0 x false true 1 2ab3 x\n&lt;a&gt; a+b%26 bc 1 1e+06 true 16 2",
        ),
        (
            r#"{{ graphLink "up == 1" }} {{ tableLink "a+b" }} {{ externalURL }}{{ pathPrefix }} {{ $externalURL }} {{ $externalLabels.dc }} {{ js "it's" }} {{ safeHtml "<" }}"#,
            r"/graph?g0.expr=up+%3D%3D+1&g0.tab=0 /graph?g0.expr=a%2Bb&g0.tab=1 http://p:9090/x/x http://p:9090/x eu it\'s <",
        ),
        (
            "{{ range $n, $v := $labels }}{{ if eq $n \"a\" }}{{ continue }}{{ end }}{{ $n }}{{ break }}{{ end }}",
            "__name__",
        ),
        (
            "{{ if gt $value 5 }}x{{ end }}",
            "!error calling gt: incompatible types for comparison: float64 and int",
        ),
        ("{{ $labels.a.b }}", "!can't evaluate field b in type string"),
        ("{{ .Nope }}", "!can't evaluate field Nope in type data"),
        (
            r#"{{ humanize "abc" }}"#,
            "!error calling humanize: strconv.ParseFloat: parsing \"abc\": invalid syntax",
        ),
        (
            r#"{{ first (query "nothing") }}"#,
            "!error calling first: first() called on vector with no elements",
        ),
        ("{{ index $labels 1 }}", "!error calling index: value has type int; should be string"),
        ("{{ now }}", "1.5"),
        // `else` knows what its block declares.
        (r#"{{ with $x := "" }}y{{ else }}[{{ $x }}]{{ end }}"#, "[]"),
        ("{{ if $x := 0 }}y{{ else }}[{{ $x }}]{{ end }}", "[0]"),
        ("{{ if $x := 0 }}y{{ else if $y := 0 }}x{{ else }}[{{ $x }}{{ $y }}]{{ end }}", "[00]"),
        (r#"{{ range $x := query "no" }}y{{ else }}[{{ $x }}]{{ end }}"#, "[[]]"),
        (r#"{{ range $i, $x := query "no" }}y{{ else }}[{{ $i }}{{ $x }}]{{ end }}"#, "[[][]]"),
        (r#"{{ $x := 1 }}{{ range $x = query "no" }}y{{ else }}[{{ $x }}]{{ end }}"#, "[[]]"),
    ] {
        assert_eq!(expanded(text, 2.0), wanted, "{text}");
    }
}

#[test]
fn what_is_not_known_is_refused_when_it_is_read() {
    for (text, why) in [
        ("a\n {{ nope 1 }}", "template:2:5: function \"nope\" not defined"),
        ("{{ $nope }}", "undefined variable \"$nope\""),
        ("{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}", "undefined variable \"$x\""),
        ("{{ if $x := 1 }}{{ end }}{{ $x }}", "undefined variable \"$x\""),
        ("{{ if 1 }}{{ $x := 1 }}{{ else }}{{ $x }}{{ end }}", "undefined variable \"$x\""),
        ("{{ with $x := 1 }}{{ else }}{{ end }}{{ $x }}", "undefined variable \"$x\""),
        ("{{ $x = 1 }}", "undefined variable \"$x\""),
        ("{{ template \"x\" }}", "template \"x\" not defined"),
        ("{{ template x }}", "{{template}} wants the name of a template"),
        ("{{ define \"x\" }}{{ $value }}{{ end }}", "undefined variable \"$value\""),
        ("{{ define \"x\" }}", "unclosed {{define}}"),
        ("{{ define \"x\" }}{{ else }}{{ end }}", "unexpected {{else}}"),
        ("{{ if 1 }}{{ define \"x\" }}{{ end }}{{ end }}", "unexpected {{define}}"),
        ("{{ define \"x\" }}a{{ end }}{{ define \"x\" }}b{{ end }}", "multiple definition"),
        (
            "{{ range query \"m\" }}{{ block \"x\" . }}{{ break }}{{ end }}{{ end }}",
            "outside {{range}}",
        ),
        ("{{ block \"x\" }}{{ end }}", "missing value for command"),
        ("{{ if true }}", "unclosed {{if}}"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ else }}", "unexpected {{else}}"),
        ("{{ break }}", "outside {{range}}"),
        ("{{ humanize }}", "wrong number of args for humanize: want 1 got 0"),
        ("{{ 1 | humanize 2 }}", "want 1 got 2"),
        ("{{ print humanize }}", "want 1 got 0"),
        ("{{ query.Labels }}", "wrong number of args for query: want 1 got 0"),
        ("{{ first.Value }}", "wrong number of args for first: want 1 got 0"),
        ("{{ print 1 len.x }}", "wrong number of args for len: want 1 got 0"),
        ("{{ (eq.a.b) }}", "wrong number of args for eq: want at least 2 got 0"),
        ("{{ (toTime 1).Format \"15:04\" }}", "can't give an argument"),
        ("{{ tmpl \"x\" 1 }}", "function \"tmpl\" not defined"),
        ("{{ 1 2 }}", "can't give an argument"),
        ("{{ nil }}", "nil is not a command"),
        ("{{ }}", "missing value for command"),
        ("{{ 1 | }}", "missing value for command"),
        ("{{ (1 }}", "unclosed left paren"),
        ("{{ 1) }}", "unexpected right paren"),
        ("{{ \"a }}", "unterminated quoted string"),
        ("{{ 'a' }}", "character constants"),
        ("{{ # }}", "unexpected '#'"),
        ("{{ 1abc }}", "bad number syntax"),
        ("{{ $value", "unclosed action"),
        ("{{/* x", "unclosed comment"),
        ("{{ match \"(\" .Value }}", "the pattern"),
        ("{{ query \"sum(\" }}", "query \"sum(\""),
    ] {
        let found = Template::parse(text).expect_err(text);
        assert!(found.contains(why), "{text}: {found}");
    }
}

/// As Go's documentation of text/template and of time has them.
#[test]
fn templates_call_each_other() {
    for (text, wanted) in [
        (
            r#"{{ template "host" .Labels.a }}!{{ define "host" }}[{{ . }}{{ $ }}]{{ end }}"#,
            "[11]!",
        ),
        (
            r#"{{ define "x" }}{{ .arg0 }}-{{ .arg1 }}-{{ .arg2 }}{{ end }}{{ template "x" (args 1 "b") }}"#,
            "1-b-<no value>",
        ),
        (r#"{{ define "x" }}{{ . }}{{ end }}{{ template "x" }}"#, "<no value>"),
        (r#"{{ block "x" $value }}<{{ . }}>{{ end }}{{ template "x" 1 }}"#, "<2><1>"),
        (
            r#"{{ define "x" }} {{ end }}{{ define "x" }}b{{ end }}{{ define "x" }}{{ end }}{{ template "x" }}"#,
            "b",
        ),
        (
            r#"{{ define "a" }}a{{ template "b" . }}{{ end }}{{ define "b" }}{{ range query "m" }}{{ .Value }}{{ end }}{{ end }}{{ $x := 7 }}{{ template "a" }}{{ $x }}"#,
            "a217",
        ),
        (
            r#"{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}"#,
            "!exceeded maximum template depth (100)",
        ),
        (
            r#"{{ args 1 "b" }} {{ len (args 1 2) }} {{ index (args 5) "arg0" }} {{ range $n, $v := args "x" }}{{ $n }}={{ $v }}{{ end }}"#,
            "map[arg0:1 arg1:b] 2 5 arg0=x",
        ),
        ("{{ toTime 1.5 }} {{ (toTime $value).Unix }}", "1970-01-01 00:00:01.5 +0000 UTC 2"),
        (
            "{{ toDuration 90.5 }} {{ (toDuration 5400).Hours }} {{ (toDuration $value).Milliseconds }}",
            "1m30.5s 1.5 2000",
        ),
        (
            r#"{{ toDuration 3600 }} {{ toDuration 0.0015 }} {{ toDuration 0 }} {{ toDuration -1e-7 }} {{ toDuration "1e-6" }}"#,
            "1h0m0s 1.5ms 0s -100ns 1\u{b5}s",
        ),
        (r#"{{ toTime "NaN" }}"#, "!error calling toTime: value is NaN or Inf"),
        ("{{ (toTime 1).Nope }}", "!can't evaluate field Nope in type *time.Time"),
    ] {
        assert_eq!(expanded(text, 2.0), wanted, "{text}");
    }
}

/// The most memory that this process has had so far, where its system says that.
fn memory_highest() -> usize {
    let mut status = [0; 2048];
    let env = Env::real();
    let reading = async {
        let file = env.files().open("/proc/self/status", Open::Read).await?;
        file.read_at(0, &mut status).await
    };
    let read = block_on(reading).unwrap_or_default();
    let status = String::from_utf8_lossy(&status[..read]);
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or_default() << 10
}

/// How long a text is was looked at when it was there: some templates, short ones, made gigabytes.
#[test]
fn a_text_that_gets_too_long_is_not_made_first() {
    let before = memory_highest();
    let long =
        |text: &str| format!("{{{{ $x := {text:?} }}}}{}", "{{ $x = print $x $x }}".repeat(11));
    let (letters, references) = (long("aaaaaaaaaaaaaaaa"), long("$0$0$0$0$0$0$0$0"));
    let many = " $x".repeat(15_000);
    for text in [
        format!("{letters}{{{{ print{many} }}}}"),
        format!("{letters}{{{{ println{many} }}}}"),
        format!("{letters}{{{{ html{many} }}}}"),
        format!("{letters}{{{{ js{many} }}}}"),
        format!("{letters}{{{{ urlquery{many} }}}}"),
        format!("{letters}{{{{ printf \"{}\"{many} }}}}", "%s".repeat(1000)),
        format!("{letters}{{{{ printf \"x\"{many} }}}}"),
        format!("{letters}{{{{ $y := $x }}}}{references}{{{{ reReplaceAll \"a+\" $x $y }}}}"),
    ] {
        let found = expanded(&text, 1.0);
        let more = memory_highest() - before;
        assert!(more < 100 << 20, "{more} bytes for {}", &text[text.len() - 20..]);
        assert!(found.contains("more than 65536 bytes"), "{}", &found[..found.len().min(200)]);
    }
}

#[test]
fn replacements_are_those_of_go() {
    for (pattern, replacement, wanted) in [
        ("(b)(c)?", "[$1$2]", "a[bc]a[b]"),
        ("(b)(c)?", "$$1$0", "a$1bca$1b"),
        ("(?P<name>b)", "<${name}$>", "a<b$>ca<b$>"),
        ("b", "$1x$", "a$ca$"),
        ("", "-", "-a-b-c-a-b-"),
        ("c?$", "$", "abcab$"),
    ] {
        let text = format!("{{{{ reReplaceAll {pattern:?} {replacement:?} \"abcab\" }}}}");
        assert_eq!(expanded(&text, 1.0), wanted, "{text}");
    }
}

#[test]
fn hostile_templates_end() {
    let deep = format!("{}1{}", "{{ if 1 }}".repeat(40), "{{ end }}".repeat(40));
    assert!(Template::parse(&deep).unwrap_err().contains("nested more than"));
    let chain = format!("{{{{ if 0 }}}}{}{{{{ end }}}}", "{{ else if 0 }}".repeat(4000));
    assert!(Template::parse(&chain).unwrap_err().contains("nested more than"));
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(Template::parse(&parens).unwrap_err().contains("nested more than"));
    let chain = format!("{{{{ .{} }}}}", "a.".repeat(20_000));
    assert!(Template::parse(&chain).unwrap_err().contains("fields of fields"));
    assert!(Template::parse(&"x".repeat(100_000)).unwrap_err().contains("longer than"));
    let loops = "{{ range query \"m\" }}".repeat(30) + "x" + &"{{ end }}".repeat(30);
    assert!(expanded(&loops, 1.0).starts_with('!'), "two to the 30th");
    let wide = format!("{{{{ printf \"%999999999d\" 1 }}}}{}", "");
    assert!(expanded(&wide, 1.0).len() <= 1000);
    let doubling =
        format!("{{{{ $x := \"aaaaaaaaaaaaaaaa\" }}}}{}", "{{ $x = print $x $x }}".repeat(40));
    assert!(expanded(&doubling, 1.0).contains("more than"));
    let replaced = r#"{{ $x := "aaaaaaaaaaaaaaaa" }}{{ range query "m" }}{{ $x = reReplaceAll "a" (print $x $x $x $x $x $x) $x }}{{ end }}{{ $x | len }}"#;
    let _ = expanded(replaced, 1.0);
    let args = r#"{{ $x := 1 }}{{ range query "m" }}{{ range query "m" }}{{ range query "m" }}{{ range query "m" }}{{ $x = args $x }}{{ end }}{{ end }}{{ end }}{{ end }}"#;
    assert!(expanded(args, 1.0).contains("more than 8 levels deep"));
    let wide = format!(
        "{{{{ $x := args{} }}}}{}{{{{ $x }}}}",
        " 1".repeat(100),
        "{{ $x = args $x $x $x $x }}".repeat(7)
    );
    assert!(expanded(&wide, 1.0).contains("more than 65536 bytes"));
    let queries: String = (0..100).map(|n| format!("{{{{ query \"x{n}\" }}}}")).collect();
    assert!(expanded(&queries, 1.0).contains("different queries"));
}

/// A template over `m`, a hundred thousand series, to the end that it takes too long.
fn takes_too_long(text: &str) {
    let labels: Labels = [("a", "1")].into_iter().collect();
    let series: Vec<(Labels, f64)> = vec![(labels.clone(), 1.0); 100_000];
    let mut answers = Answers::default();
    answers.add("m".into(), Ok(series));
    let template = Template::parse(text).unwrap();
    let data = Data::new(&labels, 1.0, 0);
    match template.expand(&data, &Outside::default(), &answers) {
        Expanded::Failed(why) => assert!(why.contains("takes too long"), "{text}: {why}"),
        other => panic!("{text}: {other:?}"),
    }
}

/// Each of these was little work, as it was counted, and minutes of it.
#[test]
fn what_takes_time_is_counted_as_that() {
    let many = |text: &str, times: usize| text.repeat(times);
    takes_too_long(&many(r#"{{ range query "m" }}{{ end }}"#, 20));
    takes_too_long(&many(r#"{{ len (sortByLabel "a" (query "m")) }}"#, 20));
    // A search for each byte that goes to the end of the text.
    let long = format!("{{{{ $x := {:?} }}}}", "a".repeat(30_000));
    takes_too_long(&format!(r#"{long}{{{{ reReplaceAll "a.*b|a|b{{200}}" "" $x }}}}"#));
    takes_too_long(&format!(r#"{long}{}"#, r#"{{ match "[a-z]{2000}b" $x }}"#));
    takes_too_long(&many(r#"{{ match "(x{50}){200}" "y" }}"#, 1000));
    // Arguments, texts and variables count, too.
    let arguments = many(" 1", 30_000);
    takes_too_long(&format!(
        r#"{{{{ range query "m" }}}}{{{{ len (print{arguments}) }}}}{{{{ end }}}}"#
    ));
    takes_too_long(&format!(
        r#"{long}{{{{ range query "m" }}}}{{{{ eq $x $x $x }}}}{{{{ end }}}}"#
    ));
    let variables = many("{{ $y := 1 }}", 4000);
    takes_too_long(&format!(
        r#"{{{{ $z := 1 }}}}{variables}{{{{ range query "m" }}}}{{{{ $z }}}}{{{{ end }}}}"#
    ));
}

#[test]
fn what_rules_ask_of_patterns_is_little() {
    let text = "the disk /dev/sda1 of host-17 is nearly full. ".repeat(80);
    let text = format!(r#"{{{{ reReplaceAll "[^a-z]+" "_" {text:?} | len }}}}"#);
    assert_eq!(expanded(&text, 1.0), "3200");
}
