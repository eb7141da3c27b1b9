package main

// sqlTargets are the promises for MySQL and PostgreSQL, on a server with durable commits, compared
// with other locks of such servers.
func sqlTargets() (all []target) {
	add := func(scenario, library, key, what string, limit figure, show func(float64) string) {
		all = append(all, target{text: scenario + ": " + what, value: of(scenario, library, key), limit: limit, show: show})
	}
	times := func(k float64, scenario, library, key string) figure { return times(k, of(scenario, library, key)) }

	// To one decimal: renewals, and the pings of a pool, are a hundredth of all. On MariaDB each waiting
	// process also sends a command every second, in which it sleeps.
	two, twoAndLooks := number(2.04), number(2.34)
	const naivePair = "p50, against 1.3 of a row that is upserted and updated"
	add("mysql/pair", oursMySQL, "p50", naivePair, times(1.3, "mysql/pair", naiveMySQLName, "p50"), showDuration)
	add("mysql/pair", oursMySQL, "sent", "commands", two, nil)
	add("postgres/pair", oursPostgres, "p50", naivePair, times(1.3, "postgres/pair", naivePostgresName, "p50"),
		showDuration)
	add("postgres/pair", oursPostgres, "sent", "commands", two, nil)

	for _, n := range []string{"2", "16", "32"} {
		sc := "mysql/one/" + n + "-work"
		add(sc, oursMySQL, "p50", "hand-over p50, against four times GET_LOCK's", times(4, sc, getLockName, "p50"),
			showDuration)
		add(sc, oursMySQL, "sent", "commands per acquisition", twoAndLooks, nil)
		add(sc, oursMySQL, "overtaken", "out of order", number(0), nil)

		sc = "postgres/one/" + n + "-work"
		add(sc, oursPostgres, "sent", "commands per acquisition", two, nil)
		add(sc, oursPostgres, "p50", "hand-over p50, against 2.5 of pg_advisory_lock's", times(2.5, sc, advisoryName, "p50"),
			showDuration)
		add(sc, oursPostgres, "p50", "hand-over p50, against half of a poller's", times(0.5, sc, naivePostgresName, "p50"),
			showDuration)
		add(sc, oursPostgres, "waitmax", "longest wait, against a tenth of a poller's",
			times(0.1, sc, naivePostgresName, "waitmax"), showDuration)
		add(sc, oursPostgres, "overtaken", "out of order", number(0), nil)
	}
	return all
}
