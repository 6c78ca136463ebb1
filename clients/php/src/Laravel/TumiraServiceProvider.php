<?php

declare(strict_types=1);

namespace Tumira\Laravel;

use Illuminate\Notifications\ChannelManager;
use Illuminate\Support\ServiceProvider;
use Tumira\Client;

/** Reads `services.tumira` (`url`, `key`, `country`) and adds the notification channel `tumira`. */
final class TumiraServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Client::class, function ($app) {
            $settings = $app['config']['services.tumira'] ?? [];
            return new Client($settings['url'] ?? null, $settings['key'] ?? null, $settings['country'] ?? null);
        });
    }

    public function boot(): void
    {
        $this->callAfterResolving(ChannelManager::class, function (ChannelManager $channels) {
            $channels->extend('tumira', fn ($app) => new TumiraChannel($app->make(Client::class)));
        });
    }
}
